"""The Strata client: publishes packets to a relay, and subscribes to and verifies packets from it."""
