"""The blind box: an HTTP service that stores sealed BSP files until their recipient downloads them."""
