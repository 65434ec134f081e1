"""Computing tokens and turning them into text. MLX is imported here and nowhere else."""
