"""Our engines behind OpenAI's chat completions: a reference to test client code against."""
