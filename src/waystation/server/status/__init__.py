"""What the status of a node is made of: connections, disk, clock, and what is wrong in sentences."""
