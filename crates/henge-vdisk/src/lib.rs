//! A virtual disk: parts, striping, joins, range locks, ordered flushes.
