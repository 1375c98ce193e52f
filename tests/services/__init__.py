"""Small servers in the manner of services that create background jobs by POST and are polled, each with its file."""
