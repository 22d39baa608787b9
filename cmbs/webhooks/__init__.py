"""Webhooks: endpoints of others that are told what happens, signed after Standard Webhooks, with every try on record."""
