"""The paths of the jobs: add them to the urls.py of your project."""

from django.urls import path
from django_project import views

urlpatterns = [
    path("jobs", views.jobs),
    path("jobs/<str:key>", views.wait),
    path("jobs/<str:key>/events", views.events),
    path("healthz", views.healthz),
]
