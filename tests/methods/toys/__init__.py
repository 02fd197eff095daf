"""Methods that no paper has, declared in a page each: what the floor under the methods must carry."""
