#!/bin/sh
# A child that greets, and then acknowledges for ever.
printf '\002\000\000\000\122\000'
while :; do printf '\002\000\000\000\122\000'; done
