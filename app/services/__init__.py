"""What mlxq does, one verb a module, over the store, the socket, the processes and the streams."""
