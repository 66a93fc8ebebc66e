"""What comes from api/openapi.yaml."""
