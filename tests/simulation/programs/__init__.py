"""What programs do in a world: over the public face alone, as their seed says, and what they are told."""
