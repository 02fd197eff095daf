"""WHAT ELSE IT IS WORTH: encoders on tasks of a whole picture, such as segmentation, beside untrained ones."""
