"""A terminal chat as an application of BSP; ``waystation bsp chat`` starts it."""
