#!/bin/sh
# A sandbox has no init system of Debian's: packages must not start services.
exit 101
