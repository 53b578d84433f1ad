"""tiny-sd: a small Stable Diffusion that draws flat coloured shapes at 64 pixels."""
