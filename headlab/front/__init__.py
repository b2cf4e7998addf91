"""Which heads may go at what price: nested masks judged in every language, the best of each size, confirmed on test."""
