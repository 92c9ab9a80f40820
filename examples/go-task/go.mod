module go-task

go 1.24
