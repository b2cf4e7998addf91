"""What several test files share: tiny models, synthetic results, running workers, a browser."""
