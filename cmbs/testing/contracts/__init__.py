"""One contract suite per SPI, to subclass for each driver."""
