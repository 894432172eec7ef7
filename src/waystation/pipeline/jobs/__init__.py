"""Steps of the pipeline: each reads its inputs, transforms them, publishes, and says how many rows went where."""
