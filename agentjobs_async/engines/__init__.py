"""Engines that carry a batch beyond one machine; each module needs the extra of its name."""
