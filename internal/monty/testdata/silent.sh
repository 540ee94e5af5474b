#!/bin/sh
# A child that greets, acknowledges a reset, and then says nothing.
printf '\002\000\000\000\122\000'
printf '\002\000\000\000\122\000'
cat >/dev/null
