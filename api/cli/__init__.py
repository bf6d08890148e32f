"""The command line: what each subcommand takes, asks and prints. Signals and wiring are `indexer.__main__`'s."""
