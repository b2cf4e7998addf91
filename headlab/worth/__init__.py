"""What a mask is worth: parameters, multiply-accumulates and measured time; nothing here imports torch until asked."""
