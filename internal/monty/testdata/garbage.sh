#!/bin/sh
# A child that greets, and then sends what is no frame.
printf '\002\000\000\000\122\000'
printf '\002\000\000\000\122\000'
printf '\002\000\000\000\122\000'
while :; do printf 'garbage garbage garbage garbage '; done
