"""What mlxq decides, apart from any I/O: no clock, no sockets, no disk, no event loop."""
