"""Google's wire: generateContent, of Gemini and Vertex."""
