module holdfast/end2end/cluster/pause

go 1.26.0
