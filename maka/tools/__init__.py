"""What the model may call: each tool one file. They reach the world through ports given to them, and report facts."""
