"""What is right, wrong or not to be known about a deployment: facts gathered from outside, and what they mean.

    checks     the closed list of checks, and for each outcome what it means and what to do
    facts      what was seen: plain values
    judging/   facts → findings (pure)
    probes/    [I/O] sockets, HTTP and the store, each bounded in time and bytes, and nothing changed anywhere

The command (api/cli/doctor.py) asks a running service, probes what it or the configuration names, and prints.
"""
