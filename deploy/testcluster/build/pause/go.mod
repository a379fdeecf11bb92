module emberpool.invalid/testcluster/pause

go 1.24
