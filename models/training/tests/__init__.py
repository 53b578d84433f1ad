"""Tests of the training tools: `python -m unittest models.training.tests.test_refusals` from the repository's root."""
