#!/bin/sh
# A child that greets, reads, and dies without an answer.
printf '\002\000\000\000\122\000'
head -c 40 >/dev/null
echo 'last words' >&2
exit 3
