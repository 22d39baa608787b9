"""What the speed and the memory of cmbs are held to, each against a baseline measured in the same run."""
