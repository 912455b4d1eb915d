// Package partbench holds the tests and the benchmark of Partitions on a real MongoDB
// replica set: how long until the partitions are even after instances came, left and
// died, how many moved, and that none ever had two owners.
package partbench
