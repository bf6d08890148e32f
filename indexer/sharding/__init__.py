"""[pure] Who should own what.

    members     which replicas there are, from their beats
    rendezvous  which of them should own a partition, and which should stand by

Every replica decides this for itself and comes to the same. Who does own a partition, its lease says (`store.lease`).
"""
