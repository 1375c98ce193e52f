"""The settings of the recipe. Add the entry of MIDDLEWARE to that of your project, which has the other settings."""

ROOT_URLCONF = "django_project.urls"
MIDDLEWARE = ["django_project.views.AnswerErrors"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,  # keep the loggers of the server
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
