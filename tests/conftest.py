"""What all tests share."""

import asyncio

# For a plain test, looptime asks the policy for a loop; without this it would make one that nobody closes.
asyncio.set_event_loop(None)
