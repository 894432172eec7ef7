"""The home of one BSP device: the tables that say what it shall be, and what makes and shows it as they say."""
