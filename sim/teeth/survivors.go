package main

// survived says why a generated fault breaks nothing, or what would find it.
var survived = map[string]string{}
