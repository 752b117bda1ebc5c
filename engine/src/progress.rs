//! From steps, loss and checkpoints to the proof that training resumed.
