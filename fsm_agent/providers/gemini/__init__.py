"""The codec of Google's generateContent, of Gemini and Vertex AI."""
