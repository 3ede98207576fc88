"""What the controller orders and what altered settings say, carried out."""
