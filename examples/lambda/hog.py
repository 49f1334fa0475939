"""An analysis with a leak: keeps every megabyte it ever made."""
kept = []
while True:
    kept.append(bytearray(1 << 20))
