// Package partitions tests and measures Partitions on real servers. After instances join, leave or
// crash, the partitions become evenly distributed: how long that takes and how many partitions
// move is measured, and no partition ever has two owners.
package partitions
