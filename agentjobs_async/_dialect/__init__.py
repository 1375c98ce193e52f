"""What differs between services, as one frozen value."""
