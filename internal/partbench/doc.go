// Package partbench has the tests and the benchmark of package partitions on real servers: a
// MongoDB replica set and Azurite. They measure how long it takes until the partitions are even
// after instances have joined, left and died, and how many partitions move, and they check that
// no partition ever has two owners.
package partbench
