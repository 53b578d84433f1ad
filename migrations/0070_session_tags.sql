-- Sessions of different tags do not end each other where a user has one session only.

alter table {{prefix}}sessions add column tag text;
