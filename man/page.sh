#!/bin/sh
# Prints a manual page: page.sh SCDOC FORGE NAME PAGE.scd. A line @OPTIONS@, @COMMANDS@ or
# @CONFIG@ of the page is replaced by what the program prints from its tables.
set -eu
scdoc=$1 forge=$2 name=$3 page=$4
filled=$(FORGE=$forge NAME=$name awk '
	/^@[A-Z]+@$/ {
		part = tolower(substr($0, 2, length($0) - 2))
		cmd = "\"$FORGE\" __man-" part (part == "options" ? " \"$NAME\"" : "")
		n = 0
		while ((cmd | getline line) > 0) { print line; n++ }
		if (close(cmd) != 0 || n == 0) { print "page.sh: failed: " cmd > "/dev/stderr"; exit 1 }
		next
	}
	{ print }' "$page")
printf '%s\n' "$filled" | "$scdoc"
