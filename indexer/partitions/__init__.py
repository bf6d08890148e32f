"""What a replica does with the partitions of a store: own them, or follow them."""
