"""Webhooks: endpoints of others that are told what happens, signed after Standard Webhooks, each try on record."""
