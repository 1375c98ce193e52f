"""What a seed decides before its world runs; each module has a generator of its own, whose draws change no others."""
